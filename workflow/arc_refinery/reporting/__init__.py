"""The report of an experiment: tables, plots, a gallery of tasks, and the Markdown that holds them."""
