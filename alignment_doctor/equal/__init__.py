"""Are the final results of two trainings equal within a margin?"""
