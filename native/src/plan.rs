//! From a request's plan to the planned page: every value checked, every string in its place.
//!
//! The last module that sees names and bounds; what it lets through, the stages take as it is.
//! Called by `launcher`. Touches nothing of the machine but to ask whether a bind's source is a file.

use std::collections::BTreeSet;

use crate::planned::{
    ARGV_MAX, BPF_MAX, CONTROLS, ENV_MAX, FDS_MAX, Limit, MOUNTS_MAX, Page, RLIMITS_MAX, RULES_MAX,
    Rule, Step, StepKind, Text,
};
use crate::wire::{Mount, Spawn};

/// Names of resource limits and their numbers (asm-generic/resource.h).
const RESOURCES: [(&str, u32); 16] = [
    ("cpu", 0),
    ("fsize", 1),
    ("data", 2),
    ("stack", 3),
    ("core", 4),
    ("rss", 5),
    ("nproc", 6),
    ("nofile", 7),
    ("memlock", 8),
    ("as", 9),
    ("locks", 10),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
    ("rttime", 15),
];
/// `LANDLOCK_ACCESS_FS_*`: READ_FILE and READ_DIR.
const READ: u64 = 1 << 2 | 1 << 3;
/// EXECUTE.
const EXECUTE: u64 = 1;
/// WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, MAKE_FIFO, MAKE_SYM, REFER, TRUNCATE.
const WRITE: u64 =
    1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14;

/// A tree that the launcher makes and the cell attaches, in the order of the plan.
pub struct Tree {
    /// On the host.
    pub source: String,
    /// Whether its files may be run.
    pub exec: bool,
}

/// The bits of `without`, or what is wrong with it.
pub fn without(names: &[String]) -> Result<u32, String> {
    let mut bits = 0;
    for name in names {
        match CONTROLS.iter().find(|(known, _)| known == name) {
            Some((_, bit)) => bits |= bit,
            None => return Err(format!("without: {name:?} is no control")),
        }
    }
    Ok(bits)
}

/// Fills `page` with `plan`. The reason, where the plan breaks a bound of PLAN.md.
pub fn compile(plan: &Spawn, page: &mut Page) -> Result<Vec<Tree>, String> {
    check_limits(plan)?;
    page.program = text(page, "program", place("program", &plan.program)?.as_bytes())?;
    page.cwd = text(page, "cwd", &plan.cwd.0)?;
    if plan.hostname.0.is_empty() || plan.hostname.0.len() > 64 {
        return Err("hostname: 1 to 64 bytes".into());
    }
    page.hostname = text(page, "hostname", &plan.hostname.0)?;
    let argv = plan.argv.iter().map(|argument| &argument.0[..]);
    page.args = list(page, "argv", argv, 1..=ARGV_MAX, |page| &mut page.argv[..])?;
    for entry in &plan.env {
        if !entry.0.iter().skip(1).any(|&byte| byte == b'=') {
            return Err("env: an entry is no NAME=value".into());
        }
    }
    let env = plan.env.iter().map(|entry| &entry.0[..]);
    page.envs = list(page, "env", env, 0..=ENV_MAX, |page| &mut page.env[..])?;
    descriptors(plan, page)?;
    let trees = mounts(plan, page)?;
    rules(plan, page)?;
    filter(plan, page)?;
    resources(plan, page)?;
    Ok(trees)
}

fn check_limits(plan: &Spawn) -> Result<(), String> {
    let limits = &plan.limits;
    for (name, value, bounds) in [
        ("wall_ms", limits.wall_ms, 1..=86_400_000),
        ("cpu_ms", limits.cpu_ms, 1..=86_400_000),
        // Less would kill the cell's own process before it is the tool.
        ("memory_bytes", limits.memory_bytes, 1 << 20..=1 << 46),
        ("pids", limits.pids, 1..=1 << 20),
        ("cpu_percent", limits.cpu_percent, 1..=100_000),
    ] {
        if !bounds.contains(&value) {
            return Err(format!("limits.{name}: {value} is not in {bounds:?}"));
        }
    }
    Ok(())
}

fn text(page: &mut Page, what: &str, bytes: &[u8]) -> Result<Text, String> {
    page.add(bytes)
        .ok_or_else(|| format!("{what}: holds a NUL, or the plan's text is over its bound"))
}

fn list<'a>(
    page: &mut Page,
    what: &str,
    entries: impl ExactSizeIterator<Item = &'a [u8]>,
    bounds: std::ops::RangeInclusive<usize>,
    slots: impl Fn(&mut Page) -> &mut [Text],
) -> Result<u32, String> {
    let count = entries.len();
    if !bounds.contains(&count) {
        return Err(format!("{what}: {count} entries, not {bounds:?}"));
    }
    for (index, bytes) in entries.enumerate() {
        let added = text(page, what, bytes)?;
        slots(page)[index] = added;
    }
    Ok(count as u32)
}

/// An absolute, normalised path that is not the root.
fn place<'a>(what: &str, path: &'a str) -> Result<&'a str, String> {
    let good = path.len() <= 1024
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")));
    if good {
        Ok(path)
    } else {
        Err(format!("{what}: {path:?} is no absolute, normalised path"))
    }
}

fn descriptors(plan: &Spawn, page: &mut Page) -> Result<(), String> {
    let numbers: BTreeSet<i32> = plan.fds.iter().copied().collect();
    let in_range = numbers
        .iter()
        .all(|&number| (0..FDS_MAX as i32).contains(&number));
    if !in_range || numbers.len() != plan.fds.len() || !(0..3).all(|std| numbers.contains(&std)) {
        return Err("fds: unique numbers in 0..=63, with 0, 1 and 2 among them".into());
    }
    page.fd[..plan.fds.len()].copy_from_slice(&plan.fds);
    page.fds = plan.fds.len() as u32;
    Ok(())
}

fn mounts(plan: &Spawn, page: &mut Page) -> Result<Vec<Tree>, String> {
    if plan.mounts.len() > MOUNTS_MAX {
        return Err(format!("mounts: more than {MOUNTS_MAX}"));
    }
    let mut made = BTreeSet::from(["/proc".to_owned(), "/dev".to_owned()]);
    let mut trees = Vec::new();
    for mount in &plan.mounts {
        let (Mount::Bind { at, .. }
        | Mount::Tmpfs { at, .. }
        | Mount::Symlink { at, .. }
        | Mount::Dir { at }) = mount;
        place("mounts.at", at)?;
        let first = at.split('/').nth(1).unwrap_or_default();
        if matches!(first, "proc" | "dev") {
            return Err(format!("mounts.at: {at:?} is the launcher's"));
        }
        parents(page, at, &mut made)?;
        one_mount(page, mount, &mut made, &mut trees)?;
    }
    page.trees = trees.len() as u32;
    Ok(trees)
}

fn parents(page: &mut Page, at: &str, made: &mut BTreeSet<String>) -> Result<(), String> {
    for (index, _) in at.match_indices('/').skip(1) {
        folder(page, &at[..index], made)?;
    }
    Ok(())
}

fn folder(page: &mut Page, at: &str, made: &mut BTreeSet<String>) -> Result<(), String> {
    if made.insert(at.to_owned()) {
        let at = text(page, "mounts", at.as_bytes())?;
        step(page, StepKind::Dir, at, Text::default(), Text::default())?;
    }
    Ok(())
}

fn one_mount(
    page: &mut Page,
    mount: &Mount,
    made: &mut BTreeSet<String>,
    trees: &mut Vec<Tree>,
) -> Result<(), String> {
    let none = Text::default();
    match mount {
        Mount::Bind { at, source, exec } => {
            place("mounts.source", source)?;
            let kind = std::fs::symlink_metadata(source)
                .map_err(|error| format!("mounts.source: {source:?}: {error}"))?;
            if kind.is_dir() {
                folder(page, at, made)?;
            } else if kind.is_file() {
                let place = text(page, "mounts", at.as_bytes())?;
                step(page, StepKind::File, place, none, none)?;
            } else {
                return Err(format!(
                    "mounts.source: {source:?} is no folder and no file"
                ));
            }
            let place = text(page, "mounts", at.as_bytes())?;
            step(page, StepKind::Attach, place, none, none)?;
            let (source, exec) = (source.clone(), *exec);
            trees.push(Tree { source, exec });
        }
        Mount::Tmpfs {
            at,
            size_bytes,
            inodes,
        } => {
            if *size_bytes == 0 || *inodes == 0 {
                return Err("mounts: a tmpfs of 0 would be one without a limit".into());
            }
            folder(page, at, made)?;
            let at = text(page, "mounts", at.as_bytes())?;
            let size = text(page, "mounts", size_bytes.to_string().as_bytes())?;
            let inodes = text(page, "mounts", inodes.to_string().as_bytes())?;
            step(page, StepKind::Tmpfs, at, size, inodes)?;
        }
        Mount::Symlink { at, to } => {
            let at = text(page, "mounts", at.as_bytes())?;
            let to = text(page, "mounts", to.as_bytes())?;
            step(page, StepKind::Symlink, at, to, none)?;
        }
        Mount::Dir { at } => folder(page, at, made)?,
    }
    Ok(())
}

fn step(page: &mut Page, kind: StepKind, at: Text, to: Text, more: Text) -> Result<(), String> {
    let slot = page
        .step
        .get_mut(page.steps as usize)
        .ok_or("mounts: too many folders on the way")?;
    let kind = kind as u32;
    *slot = Step { kind, at, to, more };
    page.steps += 1;
    Ok(())
}

fn rules(plan: &Spawn, page: &mut Page) -> Result<(), String> {
    if plan.landlock.len() > RULES_MAX {
        return Err(format!("landlock: more than {RULES_MAX} rules"));
    }
    for (index, rule) in plan.landlock.iter().enumerate() {
        let path = if rule.at == "/" {
            "/"
        } else {
            place("landlock.at", &rule.at)?
        };
        let mut access = 0;
        for word in &rule.access {
            access |= match word.as_str() {
                "read" => READ,
                "execute" => EXECUTE,
                "write" => WRITE,
                _ => return Err(format!("landlock.access: {word:?} is none")),
            };
        }
        if access == 0 {
            return Err("landlock.access: empty".into());
        }
        let at = text(page, "landlock", path.as_bytes())?;
        page.rule[index] = Rule { at, access };
    }
    page.rules = plan.landlock.len() as u32;
    Ok(())
}

fn filter(plan: &Spawn, page: &mut Page) -> Result<(), String> {
    let (chunks, rest) = plan.seccomp.as_chunks::<8>();
    if !rest.is_empty() || chunks.is_empty() || chunks.len() > BPF_MAX {
        return Err(format!("seccomp: 1..={BPF_MAX} instructions of 8 bytes"));
    }
    for (slot, chunk) in page.bpf.iter_mut().zip(chunks) {
        *slot = u64::from_ne_bytes(*chunk);
    }
    page.bpf_len = chunks.len() as u32;
    Ok(())
}

fn resources(plan: &Spawn, page: &mut Page) -> Result<(), String> {
    let mut count = 0;
    // 1, not 0: that is less than any core file, and the one value at which the kernel starts no
    // handler of `core_pattern` either (core(5)).
    let core = ("core".to_owned(), (1, 1));
    let given = plan.rlimits.iter().filter(|(name, _)| *name != "core");
    for (name, &(soft, hard)) in given.chain([(&core.0, &core.1)]) {
        let Some((_, resource)) = RESOURCES.iter().find(|(known, _)| known == name) else {
            return Err(format!("rlimits: {name:?} is no limit"));
        };
        if soft > hard {
            return Err(format!("rlimits.{name}: soft {soft} over hard {hard}"));
        }
        let slot = page.limit.get_mut(count).ok_or("rlimits: too many")?;
        let resource = *resource;
        *slot = Limit {
            resource,
            soft,
            hard,
        };
        count += 1;
    }
    debug_assert!(count <= RLIMITS_MAX);
    page.limits = count as u32;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sys::SharedPage;
    use crate::wire::{Bytes, Limits};

    fn plan() -> Spawn {
        let limits = Limits {
            wall_ms: 1,
            cpu_ms: 1,
            memory_bytes: 1 << 20,
            pids: 1,
            cpu_percent: 100,
        };
        Spawn::for_test(limits)
    }

    fn refusal(change: impl FnOnce(&mut Spawn)) -> String {
        let mut plan = plan();
        change(&mut plan);
        let mut page = SharedPage::new().expect("memory");
        compile(&plan, page.get_mut()).err().expect("refused")
    }

    #[test]
    fn a_good_plan_fills_the_page() {
        let mut plan = plan();
        plan.mounts.push(Mount::Bind {
            at: "/usr/lib".into(),
            source: "/usr".into(),
            exec: false,
        });
        plan.rlimits = BTreeMap::from([("core".into(), (9, 9)), ("nofile".into(), (8, 16))]);
        let mut page = SharedPage::new().expect("memory");
        let trees = compile(&plan, page.get_mut()).expect("good");
        let page = page.get();
        assert_eq!((trees.len(), trees[0].exec), (1, false));
        let kinds: Vec<u32> = page.step[..page.steps as usize]
            .iter()
            .map(|step| step.kind)
            .collect();
        assert_eq!(
            kinds,
            [
                StepKind::Dir as u32,
                StepKind::Dir as u32,
                StepKind::Attach as u32
            ]
        );
        assert_eq!(page.str(page.step[0].at), Some(c"/usr"));
        // The plan's word on cores is not heard.
        let limits = &page.limit[..page.limits as usize];
        let of = |number| limits.iter().find(|limit| limit.resource == number);
        assert_eq!(of(4).map(|limit| (limit.soft, limit.hard)), Some((1, 1)));
        assert_eq!(of(7).map(|limit| (limit.soft, limit.hard)), Some((8, 16)));
    }

    #[test]
    fn each_zero_limit_is_refused_by_name() {
        assert!(refusal(|plan| plan.limits.wall_ms = 0).contains("wall_ms"));
        assert!(refusal(|plan| plan.limits.cpu_ms = 0).contains("cpu_ms"));
        assert!(refusal(|plan| plan.limits.memory_bytes = 0).contains("memory_bytes"));
        assert!(refusal(|plan| plan.limits.pids = 0).contains("pids"));
        assert!(refusal(|plan| plan.limits.cpu_percent = 0).contains("cpu_percent"));
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for path in ["", "/", "a", "/a/", "/a//b", "/./a", "/a/..", "/../a"] {
            assert!(place("x", path).is_err(), "{path}");
        }
        assert!(place("x", "/a/..b/c").is_ok());
    }

    #[test]
    fn the_launchers_own_folders_are_refused() {
        for at in ["/proc", "/proc/self", "/dev", "/dev/shm"] {
            let reason = refusal(|plan| plan.mounts.push(Mount::Dir { at: at.into() }));
            assert!(reason.contains("launcher's"), "{reason}");
        }
    }

    #[test]
    fn an_empty_or_uneven_filter_is_refused() {
        assert!(refusal(|plan| plan.seccomp.clear()).contains("seccomp"));
        assert!(refusal(|plan| plan.seccomp.push(0)).contains("seccomp"));
    }

    #[test]
    fn text_over_all_fields_has_one_bound() {
        let reason = refusal(|plan| {
            plan.argv = vec![Bytes(vec![b'a'; 100_000]), Bytes(vec![b'a'; 100_000])]
        });
        assert!(reason.contains("argv"), "{reason}");
    }

    #[test]
    fn controls_are_left_out_by_name_only() {
        assert_eq!(without(&[]), Ok(0));
        assert!(
            without(&["seccomp".into(), "net".into()]).is_ok_and(|bits| bits.count_ones() == 2)
        );
        assert!(without(&["".into()]).is_err());
    }
}
