//! How problems look, exactly.

use super::{Config, parse, variable};

#[track_caller]
fn renders(text: &str, expected: &str) {
    let errors = parse(text).unwrap_err();
    assert_eq!(errors.to_string().trim_end(), expected.trim(), "\n{errors}");
}

#[test]
fn several_problems_at_once() {
    renders(
        r#"lisen = "127.0.0.1:6270"
admin = 6271
colour = true

[limits]
sessions = 0
session_idle = "soon"

[servers.files]
url = "https://ada:hunter2@mcp.example.com/mcp?key=k3y" # was hunter1
conect_timeout = "10s"
headers = { Authorization = "Bearer s3cret", Cookie = "id=s3cret" }
"#,
        r#"
error: unknown key `lisen`
 --> bowline.toml:1:1
  |
1 | lisen = "127.0.0.1:6270"
  | ^^^^^
  |
  = help: did you mean `listen`?

error: `admin` must be a string, not an integer
 --> bowline.toml:2:1
  |
2 | admin = 6271
  | ^^^^^
  |
  = help: write it like `admin = "127.0.0.1:6271"`

error: unknown key `colour`
 --> bowline.toml:3:1
  |
3 | colour = ****
  | ^^^^^^
  |
  = help: the keys allowed here are `listen`, `admin`, `stop_timeout`, `hosts`, `origins`, `tls`, `store`, `peers`, `limits`, `oauth`, `servers`, `union`, `unions`, `callers`

error: `sessions` must be at least 1
 --> bowline.toml:6:12
  |
6 | sessions = 0
  |            ^
  |
  = help: leave it out for the default, 100000

error: `session_idle` is not a duration
 --> bowline.toml:7:16
  |
7 | session_idle = "soon"
  |                ^^^^^^
  |
  = help: write a number and a unit, such as `500ms`, `10s`, `30m` or `2h`

error: the URL has a user name or password in it
  --> bowline.toml:10:7
   |
10 | url = "https://************mcp.example.com************"
   |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: put credentials in `headers`, such as `Authorization`

error: unknown key `conect_timeout` in `servers.files`
  --> bowline.toml:11:1
   |
11 | conect_timeout = "10s"
   | ^^^^^^^^^^^^^^
   |
   = help: did you mean `connect_timeout`?

error: the header `Cookie` is set by Bowline: cookies are kept per session
  --> bowline.toml:12:46
   |
12 | headers = { Authorization = "*************", Cookie = "*********" }
   |                                              ^^^^^^
   |
   = help: remove it
"#,
    );
}

#[test]
fn several_syntax_errors_at_once() {
    renders(
        r#"listen = 127.0.0.1:6270 # the usual
[limits]
sessions = 1__0

[servers.files]
url = "https://ada:hunter2@mcp.example.com/mcp
headers = { Authorization = Bearer s3cret }
"#,
        r#"
error: this is not valid TOML: invalid float
 --> bowline.toml:1:15
  |
1 | listen = 127.0.0.1:6270
  |               ^^^^^^^^^
  |
  = help: correct the syntax, such as a missing quote; the values are checked after that

error: this is not valid TOML: `_` may only go between digits
 --> bowline.toml:3:13
  |
3 | sessions = 1__0
  |             ^
  |
  = help: correct the syntax, such as a missing quote; the values are checked after that

error: this is not valid TOML: invalid basic string, expected `"`
 --> bowline.toml:6:47
  |
6 | url = "***************************************
  |                                               ^
  |
  = help: correct the syntax, such as a missing quote; the values are checked after that

error: this is not valid TOML: string values must be quoted, expected literal string
 --> bowline.toml:7:29
  |
7 | headers = { ************* = ****** ****** }
  |                             ^^^^^^^^^^^^^
  |
  = help: correct the syntax, such as a missing quote; the values are checked after that
"#,
    );
}

#[test]
fn columns_count_characters() {
    renders(
        "[servers]\r\né = { headers = { \"漢\" = \"漢漢\" }, \"ü\" = 1, url = 'http://h' }\r\n",
        r#"
error: this is not valid TOML: invalid unquoted key, expected letters, numbers, `-`, `_`
 --> bowline.toml:2:1
  |
2 | * = { ******* = { "*" = "**" }, "*" = *, *** = '********' }
  | ^
  |
  = help: correct the syntax, such as a missing quote; the values are checked after that
"#,
    );
    renders(
        "servers.a = { headers = { X = \"漢漢\\n\" }, url = 'http://h' }\r\n\t\"ü\" = 1\r\n",
        r#"
error: the value of the header `X` has a character that headers cannot have
 --> bowline.toml:1:27
  |
1 | servers.a = { headers = { X = "****" }, url = 'http://h' }
  |                           ^
  |
  = help: remove line breaks and other control characters; one is easily copied along

error: unknown key `ü`
 --> bowline.toml:2:2
  |
2 |     "ü" = *
  |     ^^^
  |
  = help: the keys allowed here are `listen`, `admin`, `stop_timeout`, `hosts`, `origins`, `tls`, `store`, `peers`, `limits`, `oauth`, `servers`, `union`, `unions`, `callers`
"#,
    );
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let errors = parse("x = 1\ny = 2").unwrap_err();
    let coloured = errors.render(true);
    assert!(coloured.contains("\u{1b}["));
    assert!(!errors.render(false).contains('\u{1b}'));
    let mut plain = String::new();
    for part in coloured.split("\u{1b}[") {
        let text = part.split_once('m').filter(|(code, _)| {
            code.bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b';')
        });
        plain.push_str(text.map_or(part, |(_, text)| text));
    }
    assert_eq!(plain, errors.render(false));
}

#[test]
fn a_source_name_cannot_steer_the_terminal() {
    let errors = Config::parse("\u{1b}[31m.toml", "x = 1", &variable).unwrap_err();
    assert!(!errors.to_string().contains('\u{1b}'));
}
