"""Step 1 and what other steps need of it: outputs, fresh weights, converted files, other options and inputs of the model."""
