"""The viewer of traces: an HTML file that shows searches as graphs, and figures for papers."""
