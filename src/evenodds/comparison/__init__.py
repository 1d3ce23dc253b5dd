"""Runs side by side: what each arm of a comparison reached, when, and at what cost."""
