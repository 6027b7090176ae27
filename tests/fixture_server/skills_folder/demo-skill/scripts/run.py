"""What the demo skill runs."""

print("Hello from the demo skill")
