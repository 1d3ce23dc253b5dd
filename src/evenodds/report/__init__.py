"""What a person looks at: plots, and pages that need no network."""
