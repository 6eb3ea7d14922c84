"""What is deployed, against the network that was trained."""
