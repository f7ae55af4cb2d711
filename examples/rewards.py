def is_brief(attempt):
    """1 for a correct program with little text around it."""
    return float(attempt.is_solved and len(attempt.completion) < 2 * len(attempt.code))
