"""Questions with a short text as their answer."""
