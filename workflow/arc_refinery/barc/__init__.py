"""BARC: problems as programs, the `common` library that these import, and a generator of such problems."""
