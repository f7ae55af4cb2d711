"""The keys of a config with `domain: my_domain`.

Snakemake imports this module before any job: it may not import packages that only the jobs have.
"""

from arc_refinery.refining.config import RowsExperiment


class Experiment(RowsExperiment):
    """Has the keys of every domain whose tasks are rows of a file.

    Change: for keys of your own, add a section, and give its class in `section_types` and its value in `own_of`, as
    domains/arc/config/experiment.py does; `Domain.first_turn` gets it. `forms: ClassVar = ("long", "short")`
    names forms of the feedback, the first of which is the default; `Domain.wording` gets the form.
    """
