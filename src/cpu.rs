//! One source, compiled for more than one kind of processor.
//!
//! The hot path is written once, in plain Rust that a compiler can turn into vectors. [`Cpu::run`] runs a closure
//! compiled with what this machine has: everything that is inlined into it uses those instructions.

/// What the hot path is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpu {
    /// Whatever the program as a whole is compiled for.
    Portable,
    /// x86-64 with AVX2, BMI and POPCNT: made since 2013 (Intel) and 2015 (AMD).
    #[cfg(target_arch = "x86_64")]
    Avx2(Seen),
    /// x86-64 with AVX-512 that counts bits: made since 2019 (Intel) and 2022 (AMD).
    #[cfg(target_arch = "x86_64")]
    Avx512(Seen),
}

/// Proof that this machine has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(());

impl Cpu {
    /// All that this machine can do, the best first.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! has {
                ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
            }
            let avx2 = has!("avx2" "bmi1" "bmi2" "lzcnt" "popcnt");
            if avx2 && has!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512cd" "avx512vpopcntdq") {
                all.push(Self::Avx512(Seen(())));
            }
            if avx2 {
                all.push(Self::Avx2(Seen(())));
            }
        }
        all.push(Self::Portable);
        all
    }

    /// The best that this machine can do.
    pub fn detect() -> Self {
        Self::all()[0]
    }

    /// Runs `work`, which must be inlined (`#[inline(always)]` throughout) to be compiled for this processor.
    #[inline(always)]
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        match self {
            Self::Portable => work(),
            // SAFETY: this value is made only by `all`, after it has seen every feature that `avx2` enables.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => unsafe { avx2(work) },
            // SAFETY: this value is made only by `all`, after it has seen every feature that `avx512` enables.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => unsafe { avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vpopcntdq")]
fn avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}
