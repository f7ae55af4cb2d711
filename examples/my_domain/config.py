"""The keys of a config with `domain: my_domain`.

Snakemake imports this module before any job: it may not import packages that only the jobs have.
"""

from arc_refinery.refining.config import RowsExperiment


class Experiment(RowsExperiment):
    """Has the keys of every domain whose tasks are rows of a file.

    Change: for keys of your own, narrow a section, here and in a subclass of it (refining/domains/code/config.py does
    so). The stages that read the section get them. `forms: ClassVar = ("long", "short")` names forms of
    the feedback, the first of which is the default; `Domain.wording` gets the form.
    """
