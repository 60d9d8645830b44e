//! What the program says of itself, and that it takes nothing else.

use std::process::{Command, Output};

fn launcher(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toolcell-native"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

#[test]
fn version_is_the_packages() {
    let output = launcher(&["--version"]);
    assert!(output.status.success());
    let expected = concat!("toolcell-native ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn anything_else_is_wrong_usage_and_prints_nothing_on_stdout() {
    for arguments in [
        &[][..],
        &["--help"],
        &["--version", "extra"],
        &["run"],
        &["serve"],
        &["serve", "--fd"],
        &["serve", "--fd", "socket"],
        &["serve", "--fd", "1"],
        &["serve", "--fd", "-1"],
        &["serve", "--fd", "9", "--unsafe"],
    ] {
        let output = launcher(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_descriptor_that_is_not_open_is_an_error_that_says_so() {
    let output = launcher(&["serve", "--fd", "999"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("toolcell-native: "));
}
