//! Throw-away certificates, made by `openssl`.

use std::path::Path;

use anyhow::Context as _;
use tokio::process::Command;

/// Makes an authority (`ca.pem`), and a certificate of it for 127.0.0.1 (`NAME.pem`, `NAME.key`).
///
/// # Errors
///
/// When `openssl` is not installed.
pub async fn make(directory: &Path, name: &str) -> anyhow::Result<()> {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let request = || {
        let mut command = Command::new("openssl");
        command.current_dir(directory).args(["req", "-x509"]);
        command.args(key).args(["-nodes", "-days", "2"]);
        command
    };
    run(request()
        .args(["-subj", "/CN=testbed"])
        .args(["-keyout", "ca.key", "-out", "ca.pem"]))
    .await?;
    run(request()
        .args(["-subj", &format!("/CN={name}")])
        .args(["-CA", "ca.pem", "-CAkey", "ca.key"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{name}.key")])
        .args(["-out", &format!("{name}.pem")]))
    .await
}

pub(crate) async fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.as_std().get_program().to_owned();
    let output = command
        .output()
        .await
        .with_context(|| format!("{} is not installed", name.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}: {said}", name.display());
    Ok(())
}
