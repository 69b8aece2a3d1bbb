"""The same questions to every engine: a report and a campaign, without what the clock says."""

from concurrent.futures import Executor

import truenorm.verify as tv
from engines.kernel import subject
from verify.collecting.executors import text_of

__all__ = ["judged"]


def judged(executor: Executor | None) -> str:
    report = tv.verify(subject, executor=executor)
    campaign = tv.campaign(subject, 40, seed=9, executor=executor)
    return f"{text_of(report)}\n{text_of(campaign)}"
