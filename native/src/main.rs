//! The launcher of the out-of-process lane.
//!
//! It answers `--version` and nothing else yet; every other use is refused, so that nobody takes
//! a launcher that launches nothing for a sandbox.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [only] if only == "--version" => {
            println!("toolcell-native {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: toolcell-native --version");
            ExitCode::from(2)
        }
    }
}
