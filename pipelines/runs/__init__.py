"""What a run consists of: batches, model and optimizer of a recipe, folders, devices, reports, scores, and outputs."""
