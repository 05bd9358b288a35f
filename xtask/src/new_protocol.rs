//! `cargo xtask new-protocol NAME [--calls]`: a protocol that builds, from one of the templates.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// The line that opens and the line that closes a list that the catalog keeps sorted.
const MARKER: &str = "catalog:protocols";

/// The template for layers of messages.
pub(crate) const MESSAGES: &str = "template";
/// The template for layers of calls.
pub(crate) const CALLS: &str = "calltemplate";

/// Copies this template to `protocols/NAME`, lists it in the catalog; gives back what to do next.
pub(crate) fn create(root: &Path, template: &str, name: &str) -> io::Result<String> {
    validate(name).map_err(io::Error::other)?;
    let dir = root.join("protocols").join(name);
    if dir.exists() {
        return Err(io::Error::other(format!(
            "protocols/{name} exists already; nothing was changed"
        )));
    }
    // Read and change everything before the first file is written, so that a refusal leaves the
    // tree as it was.
    let source = root.join("catalog/src/lib.rs");
    let manifest = root.join("catalog/Cargo.toml");
    let new_source =
        list_in_source(&fs::read_to_string(&source)?, name).map_err(io::Error::other)?;
    let workspace_manifest = root.join("Cargo.toml");
    let new_workspace = list_in_workspace(&fs::read_to_string(&workspace_manifest)?, name);
    let new_manifest =
        list_in_manifest(&fs::read_to_string(&manifest)?, name, new_workspace.is_some());
    let new_manifest = new_manifest.map_err(io::Error::other)?;

    let source_dir = root.join("protocols").join(template);
    let prefix = format!("protocols/{template}/");
    for path in workspace::files(root)? {
        let Some(inner) = path.strip_prefix(&prefix) else {
            continue;
        };
        let target = dir.join(rename(inner, template, name));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(target, rename(&fs::read_to_string(source_dir.join(inner))?, template, name))?;
    }
    if !dir.exists() {
        return Err(io::Error::other(format!(
            "protocols/{template} holds no files; nothing was changed"
        )));
    }
    fs::write(source, new_source)?;
    fs::write(manifest, new_manifest)?;
    if let Some(text) = new_workspace {
        fs::write(workspace_manifest, text)?;
    }
    format(root, name)?;
    Ok(format!(
        "protocols/{name} is a copy of protocols/{template}, and the catalog lists it.\n\
         Write its manual in protocols/{name}/src/lib.rs first; then: cargo test -p xk-{name}"
    ))
}

/// A name with another length wraps lines elsewhere.
fn format(root: &Path, name: &str) -> io::Result<()> {
    let package = format!("xk-{name}");
    let status = Command::new(workspace::env_cargo())
        .args(["fmt", "--package", &package, "--package", "xk-catalog"])
        .current_dir(root)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("the copy stands, but `cargo fmt` refused it"))
    }
}

fn validate(name: &str) -> Result<(), String> {
    const RESERVED: &[&str] =
        &[MESSAGES, CALLS, "core", "kit", "run", "lang", "compose", "catalog", "testkit", "sim"];
    let tail = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !tail || !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.len() > 24 {
        return Err(format!(
            "`{name}`: a name is a small letter, then up to 23 small letters and digits, as in `vip2`"
        ));
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` is a crate of ours already"));
    }
    Ok(())
}

/// Replaces the template's name in its three spellings.
fn rename(text: &str, template: &str, name: &str) -> String {
    text.replace(&template.to_uppercase(), &name.to_uppercase())
        .replace(&title(template), &title(name))
        .replace(template, name)
}

/// `udp` becomes `Udp`.
fn title(name: &str) -> String {
    let mut chars = name.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
}

/// Adds the protocol between the markers of `catalog/src/lib.rs`, in the form of the line that is
/// there for another.
fn list_in_source(source: &str, name: &str) -> Result<String, String> {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let is_marker = |line: &String| line.trim_start().starts_with("//") && line.contains(MARKER);
    let missing = || format!("catalog/src/lib.rs has no two lines with `// {MARKER}`");
    let open = lines.iter().position(is_marker).ok_or_else(missing)?;
    let close = lines.iter().skip(open + 1).position(is_marker).ok_or_else(missing)? + open + 1;
    let (model, known) = lines[open + 1..close]
        .iter()
        .find_map(|line| Some((line.clone(), crate_named(line)?)))
        .ok_or_else(|| {
            format!("no line between the markers `{MARKER}` names a crate, so its form is unknown")
        })?;
    let line = model
        .replace(&format!("xk_{known}"), &format!("xk_{name}"))
        .replace(&title(&known), &title(name))
        .replace(&format!("\"{known}\""), &format!("\"{name}\""));
    let place = (open + 1..close).find(|&at| lines[at].trim() > line.trim()).unwrap_or(close);
    lines.insert(place, line);
    Ok(lines.join("\n") + "\n")
}

/// The `udp` of `xk_udp`, where a line names such a crate.
fn crate_named(line: &str) -> Option<String> {
    let rest = &line[line.find("xk_")? + "xk_".len()..];
    let name: String =
        rest.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit()).collect();
    (!name.is_empty()).then_some(name)
}

/// Adds the dependency under `[dependencies]`, in its sorted place and in the form of the protocols
/// that are there.
fn list_in_manifest(manifest: &str, name: &str, shared: bool) -> Result<String, String> {
    let line = if shared {
        format!("xk-{name}.workspace = true")
    } else {
        format!("xk-{name} = {{ path = \"../protocols/{name}\" }}")
    };
    insert_in_section(manifest, "[dependencies]", &line)
        .ok_or_else(|| "catalog/Cargo.toml has no [dependencies]".into())
}

/// Adds the path under `[workspace.dependencies]`, when the protocols' paths stand there; `None`
/// when they do not.
fn list_in_workspace(manifest: &str, name: &str) -> Option<String> {
    let shared =
        manifest.lines().any(|l| l.starts_with("xk-") && l.contains("path = \"protocols/"));
    let line = format!("xk-{name} = {{ path = \"protocols/{name}\" }}");
    insert_in_section(manifest, "[workspace.dependencies]", &line).filter(|_| shared)
}

/// Puts `line` before the first line of ours (`xk-...`) in the section that is greater, or behind
/// the last of them.
fn insert_in_section(manifest: &str, section: &str, line: &str) -> Option<String> {
    let mut lines: Vec<&str> = manifest.lines().collect();
    let start = lines.iter().position(|l| l.trim() == section)? + 1;
    let ours = lines[start..].iter().take_while(|l| !l.starts_with('[')).enumerate();
    let ours: Vec<usize> =
        ours.filter(|(_, l)| l.starts_with("xk-")).map(|(index, _)| start + index).collect();
    let behind = ours.last().map_or(start, |last| last + 1);
    let place = ours.iter().copied().find(|&at| lines[at] > line).unwrap_or(behind);
    lines.insert(place, line);
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["udp", "vip2", "demo"] {
            assert!(validate(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "Udp",
            "2udp",
            "u-dp",
            "u_dp",
            "../x",
            "template",
            "core",
            "a123456789012345678901234",
        ] {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_spelling_is_renamed() {
        assert_eq!(
            rename("xk-template Template TEMPLATE_MAX", MESSAGES, "udp"),
            "xk-udp Udp UDP_MAX"
        );
        assert_eq!(rename("xk_calltemplate::Calltemplate", CALLS, "demo"), "xk_demo::Demo");
        assert_eq!(rename("src/lib.rs", MESSAGES, "udp"), "src/lib.rs");
    }

    #[test]
    fn the_catalog_stays_sorted() {
        let source = "a\n    // catalog:protocols\n    (\"arp\", xk_arp::Arp::ENTRY),\n    (\"udp\", xk_udp::Udp::ENTRY),\n    \
                      // catalog:protocols\nz\n";
        let listed = list_in_source(source, "ip").unwrap();
        let expected =
            "(\"arp\", xk_arp::Arp::ENTRY),\n    (\"ip\", xk_ip::Ip::ENTRY),\n    (\"udp\"";
        assert!(listed.contains(expected), "{listed}");
        assert!(
            list_in_source(source, "vip").unwrap().contains("xk_vip::Vip::ENTRY),\n    // catalog")
        );
        assert!(list_in_source("no markers\n", "ip").is_err());
    }

    #[test]
    fn the_manifests_stay_sorted() {
        let manifest =
            "[dependencies]\nxk-arp.workspace = true\nxk-udp.workspace = true\n\n[lints]\n";
        let listed = list_in_manifest(manifest, "ip", true).unwrap();
        assert_eq!(listed, manifest.replace("xk-udp", "xk-ip.workspace = true\nxk-udp"));
        let listed = list_in_manifest(manifest, "vip", true).unwrap();
        assert_eq!(listed, manifest.replace("\n\n", "\nxk-vip.workspace = true\n\n"));
        let listed = list_in_manifest(manifest, "ip", false).unwrap();
        assert_eq!(
            listed,
            manifest.replace("xk-udp", "xk-ip = { path = \"../protocols/ip\" }\nxk-udp")
        );
        assert!(list_in_manifest("[package]\n", "ip", true).is_err());
    }

    #[test]
    fn the_workspace_lists_paths_where_it_does() {
        let without = "[workspace.dependencies]\nxk-core = { path = \"core\" }\nkdl = \"6\"\n";
        assert_eq!(list_in_workspace(without, "ip"), None);
        let with = format!("{without}xk-udp = {{ path = \"protocols/udp\" }}\n");
        let listed = list_in_workspace(&with, "ip").unwrap();
        assert!(listed.contains("xk-ip = { path = \"protocols/ip\" }\nxk-udp"), "{listed}");
    }
}
