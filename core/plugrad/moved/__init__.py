"""Import paths of before: `plugrad.layers` is found here, warns, and gives `plugrad.networks.layers`."""
