// A browser for scripts: follows redirects, keeps cookies by origin, and fills in the authorization
// server's pages. For where a real browser would only be slow.

/** Posts `account` to a login page and `answer` to a consent page. */
function fill(html, account, answer) {
  if (html.includes('id="sign-in"')) return { account, action: "sign-in" };
  if (html.includes('id="allow"')) return { action: answer };
}

export class FormBrowser {
  #cookies = new Map();

  /** One request, no redirect followed. */
  async request(url, options = {}) {
    const jar = this.#jar(url);
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    const headers = { ...options.headers, ...(cookie && { cookie }) };
    const response = await fetch(url, { ...options, headers, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=;]+)=([^;]*)/);
      if (/expires=Thu, 01 Jan 1970/i.test(line)) jar.delete(name);
      else jar.set(name, value);
    }
    return response;
  }

  /**
   * Opens `url` and goes on until there is a page without a form it knows, or a redirect that
   * `stop` is true for; that is where it ended. `answer` is "allow" or "deny".
   */
  async open(url, { account = "alice", answer = "allow", stop = () => false } = {}) {
    let next = { url: String(url) };
    for (let step = 0; step < 30; step++) {
      const response = await this.request(next.url, next.options);
      const location = response.headers.get("location");
      if (response.status >= 300 && response.status < 400 && location) {
        next = { url: new URL(location, next.url).href };
        if (stop(next.url)) return { url: next.url };
        continue;
      }
      const text = await response.text();
      const form = fill(text, account, answer);
      if (!form) return { url: next.url, status: response.status, text };
      next.options = { method: "POST", body: new URLSearchParams(form) };
    }
    throw new Error(`no end of redirects and forms at ${new URL(next.url).origin}`);
  }

  /** Cookies know no ports; tests with several servers on 127.0.0.1 want them apart all the same. */
  #jar(url) {
    const { origin } = new URL(url);
    if (!this.#cookies.has(origin)) this.#cookies.set(origin, new Map());
    return this.#cookies.get(origin);
  }
}
