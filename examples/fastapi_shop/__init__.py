"""An order shop with FastAPI: orders that are not paid in time are cancelled."""
