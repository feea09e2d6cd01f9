//! Exact truth and theory: what the engine's answers are measured against.

pub mod scurve;
