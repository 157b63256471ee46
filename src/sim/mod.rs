//! A simulated CUDA driver with real memory.
