//! pagesieve keeps near-copies out of a stream of crawled pages.
//!
//! ```text
//! Kafka or files ─▶ decode ▸ words ▸ shingles ▸ sketch ─▶ probe ▸ verify ▸ insert ─▶ publish ▸ commit ─▶ Kafka or files
//!                   └────────── parallel ────────────┘   └─ one thread, in order ┘  └── one transaction ──┘
//! ```
//!
//! Dependencies point one way: `cli, admin → pipeline → transport, state → batch → index → sketch → page → config`.
//! The core (`page`, `sketch`, `index`, `verdict`) does no I/O, takes time and key as arguments and knows
//! neither Kafka nor Prometheus nor Tokio. ARCHITECTURE.md has the map and the invariants.

pub mod admin;
pub mod batch;
pub mod cli;
pub mod config;
pub mod cpu;
pub mod crash_point;
pub mod daemon;
pub mod evaluate;

pub mod generate;
pub mod index;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod page;
pub mod pipeline;
pub mod sketch;
pub mod state;

pub mod transport;
pub mod verdict;
