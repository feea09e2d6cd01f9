//! The modules of the program that read bytes of others, compiled once more and with counters in every branch.
//!
//! Not the crate `pagesieve` itself: that brings librdkafka, jemalloc and zstd along, which take five minutes to build anew with
//! other flags and are not tested here. The modules below use no others of the program; `tests/tidy.rs` holds them to it.

pub mod memory;

#[path = "../../src"]
mod program {
    pub mod config;
    pub mod cpu;
    pub mod crash_point;
    pub mod page;
    pub mod sketch;
    pub mod state;
}

pub use program::*;
