"""One wire protocol each: typed messages and their rules, sans-IO. None imports another."""
