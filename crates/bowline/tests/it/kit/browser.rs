//! What people's browsers do with links.

use std::collections::HashMap;

use bowline::Gateway;
use bowline_testbed::leaks;
use http::HeaderValue;
use reqwest::redirect::Policy;
use url::Url;

use super::client::{Answer, sent};

/// A browser with cookies of its own. It follows nothing by itself.
#[derive(Clone)]
pub(crate) struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, String>,
}

/// A start page that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) authorize_url: Url,
    pub(crate) state: String,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let http = reqwest::Client::builder().redirect(Policy::none());
        Self {
            http: http.build().unwrap(),
            cookies: HashMap::new(),
        }
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        sent(self.http.get(url).header("cookie", self.cookie())).await
    }

    /// Has the page at this address send its form there, as its script does.
    pub(crate) async fn submit(&self, url: &str) -> Answer {
        let form = form_of(&self.get(url).await.text);
        self.send(url, format!("{form}1")).await
    }

    /// Sends this form.
    pub(crate) async fn send(&self, url: &str, form: String) -> Answer {
        let request = self.http.post(url).header("cookie", self.cookie());
        sent(request.body(form)).await
    }

    /// The same as `submit` from a page of this origin.
    pub(crate) async fn submit_from(&self, origin: &str, url: &str) -> Answer {
        let form = form_of(&self.get(url).await.text);
        let request = self.http.post(url).header("cookie", self.cookie());
        sent(request.header("origin", origin).body(format!("{form}1"))).await
    }

    fn cookie(&self) -> String {
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        cookies.join("; ")
    }

    /// Opens a start page and goes on from it; its cookies are kept.
    pub(crate) async fn open(&mut self, link: &str) -> Opened {
        let page = self.get(link).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(!page.headers.contains_key("set-cookie"));
        let page = self.submit(link).await;
        assert_eq!(page.status, 303, "{}", page.text);
        for cookie in page.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            leaks::note("cookie", value);
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        let location = page.headers["location"].to_str().unwrap();
        leaks::note_url(link);
        leaks::note_url(location);
        let authorize_url = Url::parse(location).unwrap();
        let mut query = authorize_url.query_pairs();
        let state = query.find(|(name, _)| name == "state").unwrap().1;
        Opened {
            state: state.into_owned(),
            authorize_url,
        }
    }

    /// The same with the other browser's cookies under the names of its own.
    pub(crate) fn with_values_of(mut self, other: &Self) -> Self {
        let values = other.cookies.values();
        for (own, theirs) in self.cookies.values_mut().zip(values) {
            own.clone_from(theirs);
        }
        self
    }
}

/// What the button of a page sends; its script adds one character. Nothing, if it has no fields.
pub(crate) fn form_of(page: &str) -> String {
    let stamp = page.split("name=\"shown\" value=\"").nth(1);
    let stamp = stamp.and_then(|rest| rest.split('"').next());
    stamp.map_or_else(String::new, |stamp| format!("shown={stamp}&marked="))
}

/// Does what a person's browser does with a link to the start page; the last status.
pub(crate) async fn browse(gateway: &Gateway, link: &str) -> u16 {
    match set_out(link).await {
        Ok((state, cookie)) => come_back(gateway, &state, &cookie).await,
        Err(status) => status,
    }
}

/// Opens the start page: the state that goes to the authorization server, and the cookie. The status,
/// if there is no such page.
pub(crate) async fn set_out(link: &str) -> Result<(String, String), u16> {
    let follows_nothing = Policy::none();
    let browser = reqwest::Client::builder().redirect(follows_nothing).build();
    let page = browser.unwrap().post(link).send().await.unwrap();
    if page.status() != 303 {
        return Err(page.status().as_u16());
    }
    let cookie: HeaderValue = page.headers()["set-cookie"].clone();
    let cookie = cookie
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let location = page.headers()["location"].to_str().unwrap();
    leaks::note("cookie", cookie.split('=').nth(1).unwrap_or_default());
    leaks::note_url(location);
    Ok((query(location, "state"), cookie))
}

/// Comes back from the authorization server with this cookie, and sends the form of the page; the status.
pub(crate) async fn come_back(gateway: &Gateway, state: &str, cookie: &str) -> u16 {
    let at = gateway.listen();
    let back = format!("http://{at}/oauth/callback?state={state}&code=the-code");
    let http = reqwest::Client::new();
    let page = http.get(&back).header("cookie", cookie).send().await;
    let form = form_of(&page.unwrap().text().await.unwrap());
    let request = http.post(back).header("cookie", cookie);
    let sent = request.body(format!("{form}1")).send().await;
    sent.unwrap().status().as_u16()
}

/// A value in a URL's query.
pub(crate) fn query(url: &str, name: &str) -> String {
    let url = Url::parse(url).unwrap();
    let mut pairs = url.query_pairs();
    let found = pairs.find(|(known, _)| known == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {url}"))
        .1
        .into()
}
