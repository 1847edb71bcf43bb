"""The async engine; the sync one runs it in a thread."""
