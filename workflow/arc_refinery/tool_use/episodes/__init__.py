"""Episodes: conversations with tool calls, rendered, run and continued by a user."""
