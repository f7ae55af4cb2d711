"""Reports of experiments: Markdown and HTML with tables, plots and a gallery of tasks."""
