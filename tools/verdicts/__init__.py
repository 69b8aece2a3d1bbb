"""The fingerprint of verdicts: what the judge says of many kernels, one line a kernel.

``python -m tools.verdicts --to FOLDER`` judges the kernels, and compares them with the record.
``python -m tools.verdicts --compare OLD NEW`` prints what changed between two folders.
`projection` alone knows the report of the judge.
"""
