"""`kv.*`: a store that lives as long as the run, or a granted namespace that outlives it."""
