"""The parts of bench/run: tools, processes, paths, measurements, the table."""
