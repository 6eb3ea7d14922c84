"""Step 2: decoded pictures, preprocessing, augmentation, the order of samples, and batches."""
