use bowline::config::{ServerOAuth, SignInHost};

use super::*;

fn variable(name: &str) -> Option<String> {
    (name == "PORT").then(|| "8000".to_owned())
}

fn plan(arguments: &ConfigArguments) -> Plan {
    Plan::new(arguments, &variable).unwrap()
}

fn servers_of(flags: &[&str]) -> ConfigArguments {
    ConfigArguments {
        servers: flags.iter().map(ToString::to_string).collect(),
        ..ConfigArguments::default()
    }
}

fn with_file(text: &str, mut arguments: ConfigArguments) -> Result<Plan, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bowline.toml");
    fs::write(&path, text).unwrap();
    arguments.config = Some(path);
    Plan::new(&arguments, &variable)
}

#[track_caller]
fn complaints(failed: Result<Plan, Failure>) -> String {
    match failed {
        Err(Failure::Usage(complaints)) => format!("{complaints:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_named_is_the_demo() {
    let plan = plan(&ConfigArguments::default());
    assert!(plan.demo);
    assert_eq!(plan.config, Config::default());
}

#[test]
fn a_server_from_a_flag() {
    let plan = plan(&servers_of(&["a=http://127.0.0.1:1/mcp?key=x=y"]));
    assert!(!plan.demo);
    let url = plan.config.servers["a"].target.urls()[0].to_string();
    assert_eq!(url, "http://127.0.0.1:1/mcp?key=x=y");
}

#[test]
fn replicas_from_a_flag() {
    let plan = plan(&servers_of(&["a=http://a:1/mcp,http://b:1/mcp"]));
    assert_eq!(plan.config.servers["a"].target.urls().len(), 2);
}

#[test]
fn variables_of_the_file() {
    let text = |url: &str| format!("[servers.a]\nurl = \"{url}\"");
    let plan = with_file(&text("http://h:${PORT}/"), ConfigArguments::default()).unwrap();
    let url = &plan.config.servers["a"].target.urls()[0];
    assert_eq!(url.port_u16(), Some(8000));
    let failed = with_file(&text("http://${HOST}/"), ConfigArguments::default());
    assert!(matches!(failed, Err(Failure::Config(errors)) if errors.len() == 1));
}

#[test]
fn flags_win_over_the_file() {
    let file = r#"
        listen = "127.0.0.1:1"
        admin = "127.0.0.1:2"
        [servers.a]
        url = "http://a.example/mcp"
        headers = { Authorization = "for the server in the file" }
        [servers.b]
        url = "http://b.example/mcp"
    "#;
    let arguments = ConfigArguments {
        listen: Some("127.0.0.1:3".parse().unwrap()),
        admin: Some(Admin::Off),
        ..servers_of(&["a=http://other.example/mcp"])
    };
    let plan = with_file(file, arguments).unwrap();
    assert!(!plan.demo);
    assert_eq!(plan.config.listen.tcp().unwrap().port(), 3);
    assert_eq!(plan.config.admin, None);
    assert_eq!(plan.config.servers.len(), 2);
    let replaced = &plan.config.servers["a"];
    assert_eq!(replaced.target.urls()[0].host(), Some("other.example"));
    assert!(replaced.headers.is_empty());
}

#[test]
fn a_server_of_a_flag_is_one_of_the_union() {
    let file =
        "[servers.a]\nurl = \"http://a.example/\"\n[unions.team]\nservers = [\"a\", \"b\"]\n";
    let plan = with_file(file, servers_of(&["b=http://b.example/"])).unwrap();
    assert_eq!(plan.config.whole_union().servers.len(), 2);
    let said = complaints(with_file(
        file,
        servers_of(&["b=http://b.example/", "a__b=http://c/"]),
    ));
    assert!(said.contains("can belong to `a` or to `a__b`"), "{said}");
    let said = complaints(with_file(
        file,
        servers_of(&["b=http://b.example/", "team=http://c/"]),
    ));
    assert!(said.contains("has the name of a server"), "{said}");
}

#[test]
fn a_file_without_servers_needs_one_from_a_flag() {
    let said = complaints(with_file("", ConfigArguments::default()));
    assert!(said.contains("has no servers"), "{said}");
    assert!(with_file("", servers_of(&["a=http://a.example"])).is_ok());
}

#[test]
fn one_address_cannot_serve_both() {
    let same = |address: &str| ConfigArguments {
        listen: Some(address.parse().unwrap()),
        admin: Some(Admin::At(address.parse().unwrap())),
        ..ConfigArguments::default()
    };
    let said = complaints(Plan::new(&same("127.0.0.1:9"), &variable));
    assert!(said.contains("cannot share an address"), "{said}");
    assert!(Plan::new(&same("127.0.0.1:0"), &variable).is_ok());
}

#[test]
fn a_redirect_uri_is_for_the_servers_of_flags_and_the_file_s_that_sign_in() {
    let arguments = || ConfigArguments {
        mcp_oauth_redirect_uri: Some("myapp://Cb".to_owned()),
        ..servers_of(&["a=http://a.example/mcp"])
    };
    let uri = RedirectUri::from_str("myapp://Cb").unwrap();
    let alone = plan(&arguments()).config;
    assert_eq!(alone.oauth.redirect_uri, Some(uri.clone()));
    let drive = Some(ServerOAuth::drive(uri));
    assert_eq!(alone.servers["a"].oauth, drive);

    let file = r#"
        [servers.b]
        url = "http://b.example/mcp"
        oauth = {}
        [servers.c]
        url = "http://c.example/mcp"
        oauth = { flow = "client-driven" }
        [servers.d]
        url = "http://d.example/mcp"
    "#;
    let config = with_file(file, arguments()).unwrap().config;
    assert_eq!(config.servers["a"].oauth, drive);
    assert_eq!(config.servers["b"].oauth, drive);
    let c = config.servers["c"].oauth.as_ref().unwrap();
    assert_eq!(c.redirect_uri, None);
    assert_eq!(config.servers["d"].oauth, None);
    let silent = plan(&servers_of(&["a=http://a.example/mcp"]));
    assert_eq!(silent.config.servers["a"].oauth, None);
}

#[test]
fn a_flow_and_a_host_are_for_the_same_servers() {
    let arguments = |flow, host, uri: Option<&str>| ConfigArguments {
        mcp_oauth_flow: flow,
        mcp_oauth_host: host,
        mcp_oauth_redirect_uri: uri.map(str::to_owned),
        ..servers_of(&["a=http://a.example/mcp"])
    };
    let docker = Some(SignInHost::DockerAgent);
    let uri = Some("https://app.example/cb");
    for (flow, host, uri, expected) in [
        (Some(Flow::Managed), None, None, Flow::Managed),
        (Some(Flow::ClientDriven), docker, None, Flow::ClientDriven),
        (None, docker, None, Flow::Managed),
        (None, docker, uri, Flow::Drive),
        (Some(Flow::Drive), None, uri, Flow::Drive),
    ] {
        let config = plan(&arguments(flow, host, uri)).config;
        let oauth = config.servers["a"].oauth.as_ref().unwrap();
        assert_eq!(oauth.flow, expected);
        assert_eq!(oauth.redirect_uri.is_some(), expected == Flow::Drive);
        assert_eq!(config.oauth.host, host.unwrap_or_default());
    }
    for (flow, uri, why) in [
        (Flow::Drive, None, "needs a redirect URI"),
        (Flow::Managed, uri, "means nothing with the flow `managed`"),
    ] {
        let said = complaints(Plan::new(&arguments(Some(flow), None, uri), &variable));
        assert!(said.contains(why), "{said}");
    }
    let prefix = ConfigArguments {
        mcp_oauth_meta_prefix: Some("x".to_owned()),
        ..arguments(None, docker, None)
    };
    assert_eq!(plan(&prefix).config.oauth.meta_prefix, "x");
    let file = "[servers.b]\nurl = \"http://b.example/mcp\"\noauth = {}";
    let config = with_file(file, arguments(Some(Flow::ClientDriven), docker, None));
    let config = config.unwrap().config;
    let b = config.servers["b"].oauth.as_ref().unwrap();
    assert_eq!(b.flow, Flow::ClientDriven);
    assert_eq!(config.oauth.meta_prefix, "docker-agent");
}

#[test]
fn whoever_signs_in_says_who_it_is() {
    let open = |file: &str| {
        let arguments = ConfigArguments {
            listen: Some("0.0.0.0:0".parse().unwrap()),
            mcp_oauth_redirect_uri: Some("https://app.example/cb".to_owned()),
            ..servers_of(&["a=http://a.example/mcp"])
        };
        with_file(file, arguments)
    };
    let said = complaints(open(""));
    assert!(said.contains("server a: others can reach"), "{said}");
    open("[callers.ada]\nkey = \"0123456789abcdef\"").unwrap();
}

#[test]
fn a_redirect_uri_is_checked_with_the_servers() {
    let arguments = ConfigArguments {
        mcp_oauth_redirect_uri: Some("http://s3cret.example/cb".to_owned()),
        ..servers_of(&["a=ftp://a.example/"])
    };
    let failed = Plan::new(&arguments, &variable);
    let Err(Failure::Usage(all)) = &failed else {
        panic!("{failed:?}");
    };
    assert_eq!(all.len(), 2);
    let said = complaints(failed);
    assert!(
        said.contains("--mcp-oauth-redirect-uri: the redirect URI is http"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn no_complaint_shows_a_url() {
    for (flag, expected) in [
        ("http://a.example/s3cret", "has no name"),
        ("http://a.example/?key=s3cret", "has no name"),
        ("=http://a.example/s3cret", "name is empty"),
        ("a b=http://a.example/s3cret", "a b: the server's name has"),
        ("a=ftp://a.example/s3cret", "a: the URL's scheme"),
        ("a=http://s3cret@a.example/", "a: the URL has a user name"),
        ("a=http://a/,http://s3cret@b/", "a: the URL has a user name"),
        (
            "a=http://a/s3cret,http://a/s3cret",
            "a: the endpoint is given twice",
        ),
        (
            "a=http://a/?s3cret,s3cret",
            "a: a URL between the commas has no scheme",
        ),
    ] {
        let said = complaints(Plan::new(&servers_of(&[flag]), &variable));
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn an_api_token_that_is_set_and_empty_is_a_mistake() {
    for (name, value) in [
        ("BOWLINE_API_TOKEN", ""),
        ("BOWLINE_API_TOKEN", " "),
        ("BOWLINE_API_TOKEN_FILE", ""),
    ] {
        let environment = |asked: &str| (asked == name).then(|| value.to_owned());
        let said = complaints(Plan::new(&ConfigArguments::default(), &environment));
        assert!(said.contains("is set but empty"), "{said}");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn the_api_token_is_no_callers_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bowline.toml");
    let key = "k3y-of-a-caller-0123";
    let servers = "[servers.a]\nurl = \"http://127.0.0.1:1/mcp\"\n";
    fs::write(&file, format!("{servers}[callers.bob]\nkey = \"{key}\"\n")).unwrap();
    let arguments = ConfigArguments {
        config: Some(file),
        ..ConfigArguments::default()
    };
    let planned = |token: &'static str| {
        let environment = move |name: &str| (name == "BOWLINE_API_TOKEN").then(|| token.to_owned());
        Plan::new(&arguments, &environment)
    };
    let said = complaints(planned(key));
    assert!(said.contains("key of the caller `bob`"), "{said}");
    assert!(!said.contains(key), "{said}");
    planned("another-token-01234").unwrap();
}

#[test]
fn the_api_token_may_lie_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (full, empty) = (folder.path().join("token"), folder.path().join("empty"));
    fs::write(&full, "let-me-in\n").unwrap();
    fs::write(&empty, " \n").unwrap();
    let planned = |token: Option<&str>, file: &Path| {
        let environment = |name: &str| match name {
            "BOWLINE_API_TOKEN" => token.map(str::to_owned),
            "BOWLINE_API_TOKEN_FILE" => Some(file.display().to_string()),
            _ => None,
        };
        Plan::new(&ConfigArguments::default(), &environment)
    };
    let plan = planned(None, &full).unwrap();
    assert!(plan.config.api_token.unwrap().is_of(b"let-me-in"));
    for (failed, why) in [
        (planned(Some("x"), &full), "set one of the two"),
        (planned(None, &empty), "is empty"),
        (planned(None, &folder.path().join("none")), "cannot read"),
    ] {
        let said = complaints(failed);
        assert!(said.contains(why), "{said}");
    }
}
