"""Find out what is installed here, and whether it computes what it promises."""

from truenorm.doctor.examination import examine
from truenorm.doctor.report import Diagnosis, Line, Section

__all__ = ["Diagnosis", "Line", "Section", "examine"]
