//! Settings that are one of a few words: each enum, its words and the way between them.

use super::values::{FromValue, Value};

/// An enum whose variants are words of the configuration; the words stand once, here.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// The words of the configuration, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The word of the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("must be one of {}", Self::NAMES.join(", "))),
                }
            }
        }

        impl FromValue for $name {
            fn from_value(value: Value) -> Result<Self, String> {
                String::from_value(value)?.parse()
            }
        }

        impl From<$name> for Value {
            fn from(choice: $name) -> Self { Value::Text(choice.as_str().to_owned()) }
        }
    };
}

choice! {
    /// What becomes of a page with some verdict.
    Action {
        /// Goes out as it came in.
        Forward = "forward",
        /// Goes out with headers that name the verdict and the canonical page.
        Tag = "tag",
        /// Does not go out; its verdict record says why.
        Drop = "drop",
    }
}

choice! {
    /// What becomes of a page whose event time lies before the window.
    Late {
        /// Judged, but not remembered.
        Probe = "probe",
        /// Judged and remembered like any other.
        Remember = "remember",
        /// Forwarded without being judged.
        Forward = "forward",
    }
}

choice! {
    /// What is written.
    Mode {
        /// Survivors, verdict records and dead letters.
        Pages = "pages",
        /// Verdict records only: a shadow run beside a live pipeline.
        Verdicts = "verdicts",
    }
}

choice! {
    /// Which pages get a verdict record.
    VerdictRecords {
        /// Every page that is on no other topic: then each page's fate is told exactly once.
        Dropped = "dropped",
        /// Every page that is not plainly unique.
        NotUnique = "not_unique",
        /// Every page.
        All = "all",
    }
}

choice! {
    /// What Kafka is asked to guarantee.
    Delivery {
        /// Outputs, state and offsets go out in one transaction.
        ExactlyOnce = "exactly_once",
        /// Offsets follow acknowledged outputs; a crash may repeat some pages.
        AtLeastOnce = "at_least_once",
    }
}

choice! {
    /// What to do when the remembered window cannot be restored whole.
    OnGap {
        /// Go on with what there is: surplus copies, loudly counted.
        Serve = "serve",
        /// Stay unready until an operator decides.
        Wait = "wait",
        /// Exit with an error.
        Exit = "exit",
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for word in Action::NAMES {
            assert_eq!(word.parse::<Action>().map(Action::as_str), Ok(*word));
        }
        for word in OnGap::NAMES {
            assert_eq!(word.parse::<OnGap>().map(OnGap::as_str), Ok(*word));
        }
        assert!("Drop".parse::<Action>().is_err());
    }
}
