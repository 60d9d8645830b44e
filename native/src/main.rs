//! The launcher of the out-of-process lane: plans in, cells out.
//!
//! A small single-threaded program that the lane starts once. It knows nothing of tools, policies
//! or JSON-RPC; PLAN.md is its protocol. Read `stages` for what a cell goes through, `launcher` for
//! what happens around it; `sys` is the one module with `unsafe` in it.

mod cell;
mod cgroup;
mod janitor;
mod launcher;
mod link;
mod plan;
mod planned;
mod receipt;
mod stages;
mod sys;
mod wire;

use std::process::ExitCode;

const USAGE: &str = "usage: toolcell-native --version | serve --fd N [--weaken]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--version"] => {
            println!("toolcell-native {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["serve", "--fd", number] => serve(number, false),
        ["serve", "--fd", number, "--weaken"] => serve(number, true),
        _ => wrong_usage(),
    }
}

fn wrong_usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn serve(number: &str, weaken: bool) -> ExitCode {
    let Some(fd) = number.parse().ok().filter(|fd| *fd > 2) else {
        return wrong_usage();
    };
    let served = sys::inherit(fd).and_then(|socket| launcher::serve(socket, weaken));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toolcell-native: {error}");
            ExitCode::from(2)
        }
    }
}
