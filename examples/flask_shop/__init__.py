"""An order shop with Flask: orders that are not paid in time are cancelled."""
