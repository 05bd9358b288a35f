//! AppleTalk's programs for the guest of the peer tests: netatalk, which Debian has again since
//! trixie. They are unpacked below `target`, with the libraries that they need, and never
//! installed. Without them the tests that meet them are skipped by name.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup;

/// Address of Debian's packages, and the suite that has these.
const SOURCE: &str = "http://deb.debian.org/debian trixie main";
/// Keys that Debian's own installations hold.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Bounds the time of apt and dpkg together, in seconds.
const SECONDS_MAX: &str = "300";

/// The programs' packages, and those of all libraries that the programs name, and these name.
const PACKAGES: &str = "atalkd papd netatalk libatalk \
    libacl1 libatomic1 libavahi-client3 libavahi-common3 libblkid1 libc6 libcap2 libcom-err2 \
    libcups2t64 libdbus-1-3 libffi8 libglib2.0-0t64 libgmp10 libgnutls30t64 libgssapi-krb5-2 \
    libhogweed6t64 libidn2-0 libiniparser4 libjson-glib-1.0-0 libk5crypto3 libkeyutils1 libkrb5-3 \
    libkrb5support0 libldap2 liblzma5 libmariadb3 libmount1 libnettle8t64 libp11-kit0 libpcre2-8-0 \
    libsasl2-2 libselinux1 libsqlite3-0 libssl3t64 libsystemd0 libtalloc2 libtasn1-6 \
    libtinysparql-3.0-0 libtirpc3t64 libunistring5 libwrap0 libxml2 libzstd1 zlib1g";

/// The folder that the tests look for, which is there once it is whole.
fn root(target: &Path) -> PathBuf {
    target.join("netatalk")
}

/// Fetches and unpacks them unless they are there.
pub(crate) fn offer(target: &Path) {
    let root = root(target);
    setup::offer("netatalk", (&root, root.is_dir()), || fetch(target));
}

fn fetch(target: &Path) -> io::Result<()> {
    for program in ["apt-get", "dpkg"] {
        setup::find(program).ok_or_else(|| io::Error::other(format!("there is no {program}")))?;
    }
    if !Path::new(KEYS).is_file() {
        return Err(io::Error::other(format!("there is no {KEYS}")));
    }
    println!("setup: fetching netatalk of Debian trixie (20 MB), for a guest");
    let work = target.join("netatalk.new");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    for folder in ["apt/lists/partial", "apt/archives/partial", "debs", "root"] {
        fs::create_dir_all(work.join(folder))?;
    }
    fs::write(work.join("apt/sources.list"), format!("deb [signed-by={KEYS}] {SOURCE}\n"))?;
    fs::write(work.join("apt/status"), "")?;
    fs::write(work.join("fetch"), script(&work))?;
    let output =
        Command::new("timeout").args([SECONDS_MAX, "sh", "-e"]).arg(work.join("fetch")).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.starts_with("E: ")).unwrap_or("apt-get failed");
        return Err(io::Error::other(error.to_owned()));
    }
    complete(&work.join("root"))?;
    fs::rename(work.join("root"), root(target))?;
    fs::remove_dir_all(&work)
}

/// The shell's commands, with lists and a cache of their own.
fn script(work: &Path) -> String {
    let work = work.display();
    let options = [
        format!("Dir::State::lists={work}/apt/lists"),
        format!("Dir::State::status={work}/apt/status"),
        format!("Dir::Cache={work}/apt"),
        format!("Dir::Etc::sourcelist={work}/apt/sources.list"),
        "Dir::Etc::sourceparts=-".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        "Acquire::http::Timeout=20".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    let options = options.map(|option| format!(" -o '{option}'")).concat();
    format!(
        "apt='apt-get --quiet'\n\
         cd '{work}/debs'\n\
         $apt{options} update\n\
         $apt{options} download {PACKAGES}\n\
         for package in *.deb; do dpkg --extract \"$package\" ../root; done\n"
    )
}

/// Makes a root of it: what is no package's, and what lists users.
fn complete(root: &Path) -> io::Result<()> {
    for folder in ["proc", "sys", "dev", "run", "tmp", "etc", "var"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.join(folder))?;
    }
    // The shell that papd starts for what it prints.
    if let Some(busybox) = setup::find("busybox") {
        fs::copy(busybox, root.join("usr/bin/busybox"))?;
        symlink("busybox", root.join("usr/bin/sh"))?;
    }
    let nobody = "nobody:x:65534:65534::/nonexistent:/bin/false\n";
    fs::write(root.join("etc/passwd"), format!("root:x:0:0::/root:/bin/sh\n{nobody}"))?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_machine_is_touched() {
        let script = script(Path::new("/place"));
        for word in ["lists=/place/", "status=/place/", "Cache=/place/", "sourceparts=-"] {
            assert!(script.contains(word), "{word}");
        }
        assert!(!script.contains("install"));
        assert!(script.contains(" zlib1g\n") && !script.contains("  "));
    }
}
