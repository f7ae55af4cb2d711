"""Teach a code model to refine its own wrong programs, and find out whether it did."""
