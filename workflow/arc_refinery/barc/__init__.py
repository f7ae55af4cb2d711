"""BARC: problems as programs, the `common` library that they import, and a generator of such problems."""
