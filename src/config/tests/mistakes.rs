//! Wrong configurations and the lines they give.

use super::problems;
use crate::config::{Action, Config};

/// Wrong texts, each with the one line it must give.
#[test]
fn single_mistakes() {
    let cases = [
        ("[policy]\ntreshold = 0.9", "f.toml:2:1: policy.treshold: unknown key, the nearest is policy.threshold"),
        ("threshold = 0.9", "f.toml:1:1: threshold: unknown key, the nearest is policy.threshold"),
        ("[window]\nthreshold = 0.9", "f.toml:2:1: window.threshold: unknown key, the nearest is policy.threshold"),
        ("[polcy]\nthreshold = 0.9", "f.toml:1:2: polcy: unknown section, the nearest is policy"),
        ("[quux]\na = 1", "f.toml:1:2: quux: unknown key or section"),
        (
            "[kafka]\nsecurity.protocol = 'ssl'",
            "f.toml:2:1: kafka.security: unknown key or section; librdkafka's properties go into [kafka.options]",
        ),
        ("\"a\\nb\" = 1", "f.toml:1:1: a\\nb: unknown key or section"),
        (
            "[policy]\nthreshold = \"a\\nb\"",
            "f.toml:2:1: policy.threshold: must be a number from 0.5 to 1, is \"\"\"\\na\\nb\"\"\"",
        ),
        ("policy = 3", "f.toml:1:1: policy: must be a section, is a whole number"),
        ("[policy]\nthreshold = 2", "f.toml:2:1: policy.threshold: must be a number from 0.5 to 1, is 2"),
        ("[policy]\nthreshold = '0.9'", "f.toml:2:1: policy.threshold: must be a number from 0.5 to 1, is \"0.9\""),
        (
            "[policy]\nunchanged = 'Drop'",
            "f.toml:2:1: policy.unchanged: must be \"forward\", \"tag\" or \"drop\", is \"Drop\"",
        ),
        ("[policy]\nupdated = 'drop'", "f.toml:2:1: policy.updated: must be \"forward\" or \"tag\", is \"drop\""),
        (
            "[input]\n max_page_bytes = '64M'",
            "f.toml:2:2: input.max_page_bytes: must be a whole number of bytes or one with a unit, as \"64MiB\", is \"64M\"",
        ),
        (
            "[input]\nmax_page_bytes = '1TiB'",
            "f.toml:2:1: input.max_page_bytes: must be a size from 1KiB to 1GiB, is \"1TiB\"",
        ),
        (
            "[window]\nmax_age = 7",
            "f.toml:2:1: window.max_age: must be a duration with a unit, from 1s to 3650d, or \"none\", is 7",
        ),
        (
            "[kafka]\ncommit_interval = '1ms'",
            "f.toml:2:1: kafka.commit_interval: must be a duration with a unit, from 10ms to 1m, is \"1ms\"",
        ),
        (
            "[window]\nmax_share_per_host = 0",
            "f.toml:2:1: window.max_share_per_host: must be a number above 0, up to 1, is 0",
        ),
        ("[sketch]\nbytes = 300", "f.toml:2:1: sketch.bytes: must be 32, 64, 128 or 256, is 300"),
        (
            "[sketch]\nbytes = 99999999999999999999",
            "f.toml:2:1: sketch.bytes: must be 32, 64, 128 or 256, is \"a number out of range\"",
        ),
        (
            "[input]\ntopics = 'a'",
            "f.toml:2:1: input.topics: must be a list of texts, as [\"one\", \"two\"], is a text",
        ),
        ("[input]\ntopics = ['a', 'a']", "f.toml:2:1: input.topics: names topic \"a\" twice"),
        (
            "[input]\ntopics = ['ä']",
            "f.toml:2:1: input.topics: \"ä\" is no name of a topic: 1 to 249 letters, digits, dots, dashes and underscores",
        ),
        (
            "[input]\ntopics = ['a']\n[output]\nstate_topic = 'a'",
            "f.toml:4:1: output.state_topic: is topic \"a\", as is input.topics: each needs a topic of its own",
        ),
        (
            "[output]\nmode = 'verdicts'",
            "f.toml:2:1: output.verdict_topic: must be set when output.mode is \"verdicts\": nothing would be written",
        ),
        (
            "[input]\nstart = 'yesterday'",
            "f.toml:2:1: input.start: must be \"earliest\", \"latest\" or a time with its zone, as \"2026-01-31T00:00:00Z\", is \"yesterday\"",
        ),
        (
            "[input.fields]\nurl = ''",
            "f.toml:2:1: input.fields.url: must not be empty: revisits and canonical pages are known by their URL",
        ),
        (
            "[input.fields]\ntext = ''\nhtml = ''",
            "f.toml:2:1: input.fields.text: must not be empty when input.fields.html is: a page would have no words",
        ),
        (
            "[input.fields]\nid = '/a~2'",
            "f.toml:2:1: input.fields.id: must write ~ as ~0 and / as ~1 within a JSON pointer's names",
        ),
        (
            "[input.skip]\nurl_patterns = ['a', '(']",
            "f.toml:2:1: input.skip.url_patterns: must be regular expressions, \"(\" is none: unclosed group",
        ),
        ("[input.skip]\nheaders = ['=a']", "f.toml:2:1: input.skip.headers: must be name=value, \"=a\" is not"),
        (
            "[input.skip]\ncontent_types = ['text']",
            "f.toml:2:1: input.skip.content_types: must be media types, as \"text/*\", \"text\" is none",
        ),
        ("[admin]\nlisten = 9464", "f.toml:2:1: admin.listen: must be a text in quotes, is a whole number"),
        (
            "[admin]\nlisten = ':9464'",
            "f.toml:2:1: admin.listen: must be an address with a port, as \"127.0.0.1:9464\", or \"none\", is \":9464\"",
        ),
        (
            "[kafka]\ncommit_interval = '1s'\ntransaction_timeout = '1s'",
            "f.toml:2:1: kafka.commit_interval: must be below kafka.transaction_timeout, or every transaction is aborted",
        ),
        (
            "[kafka]\nsasl_username = 'me'",
            "f.toml:2:1: kafka.sasl_username: needs kafka.sasl_password or kafka.sasl_password_file",
        ),
        (
            "[kafka]\ninstance = ''",
            "f.toml:2:1: kafka.instance: must be 1 to 249 letters, digits, dots, dashes and underscores",
        ),
        ("[kafka]\nbrokers = ['a:1,b:1']", "f.toml:2:1: kafka.brokers: must be host:port each, one is \"a:1,b:1\""),
        (
            "[kafka]\noptions = 3",
            "f.toml:2:1: kafka.options: must be a table of texts, numbers and booleans, is a whole number",
        ),
        (
            "[kafka.options]\n\"a\\nb\" = 1",
            "f.toml:2:1: kafka.options.a\\nb: is no name of a property: letters, digits, dots, dashes and underscores",
        ),
        ("[kafka.options]\na = [1]", "f.toml:2:1: kafka.options.a: must be a text, number or boolean, is a list"),
        ("[kafka.options]\na.b = 1\n'a.b' = 2", "f.toml:3:1: kafka.options.a.b: is set twice, dotted and in quotes"),
        ("[kafka.options]\n'group.id' = 'x'", "f.toml:2:1: kafka.options.group.id: may not be set: use kafka.group"),
        (
            "[kafka.options]\nenable.auto.commit = true",
            "f.toml:2:13: kafka.options.enable.auto.commit: may not be set: offsets are committed together with the outputs, never by a timer",
        ),
        ("[policy]\nthreshold = 0.8 x", "f.toml:2:13: string values must be quoted, expected literal string"),
        ("[policy]\nthreshold = 0.8\nthreshold = 0.9", "f.toml:3:1: duplicate key"),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text, &[]), [expected], "{text}");
    }
}

#[test]
fn all_mistakes_at_once_in_the_order_of_the_file() {
    let text = "[sketch]\nbytes = 300\nbands = 30\nrows = 16\n[policy]\nthreshold = = 1\nunchangd = 'tag'\n[kafka.options]\nacks = 1\n";
    let overrides = [
        ("PAGESIEVE__POLICY__TRESHOLD", "1"),
        ("PAGESIEVE__ADMIN__LISTEN", "here"),
        ("PAGESIEVE__KAFKA__OPTIONS", "a=b"),
        ("PAGESIEVE__KAFKA__OPTIONS__GROUP_ID", "a"),
        ("UNRELATED__POLICY__X", "1"),
    ];
    let expected = [
        ("f.toml:2:1: sketch.bytes: must be", "300"),
        ("f.toml:6:13: extra `=`", ""),
        ("f.toml:7:1: policy.unchangd: unknown key, the nearest is policy.unchanged", ""),
        ("f.toml:9:1: kafka.options.acks: may not be set", ""),
        ("PAGESIEVE__ADMIN__LISTEN: admin.listen: must be", "\"here\""),
        ("PAGESIEVE__KAFKA__OPTIONS: kafka.options: must be set one by one", ""),
        ("PAGESIEVE__KAFKA__OPTIONS__GROUP_ID: kafka.options.group.id: may not be set", ""),
        ("PAGESIEVE__POLICY__TRESHOLD: policy.treshold: unknown key, the nearest is PAGESIEVE__POLICY__THRESHOLD", ""),
    ];
    let found = problems(text, &overrides);
    let found: Vec<_> = found.iter().filter(|line| !line.contains("f.toml:6:15")).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, (start, part)) in found.iter().zip(expected) {
        assert!(line.starts_with(start) && line.contains(part), "{line}");
    }
}

/// A command may change settings after the load; what it must not break is checked again.
#[test]
fn a_changed_configuration_is_checked_again() {
    let mut config = Config::default();
    config.check().unwrap();
    config.policy.updated = Action::Drop;
    let errors = config.check().unwrap_err().to_string();
    assert!(errors.starts_with("configuration: policy.updated: must be"), "{errors}");
}
