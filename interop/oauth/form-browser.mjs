// A browser for scripts: follows redirects, keeps cookies by origin, and fills in the pages that it
// knows. For where a real browser would only be slow.

const unescaped = (text) => text.replaceAll("&amp;", "&").replaceAll("&#38;", "&");

/** The value of an attribute of the first `tag` that matches. */
const attribute = (html, tag, name) =>
  unescaped(html.match(new RegExp(`<${tag}\\b[^>]*\\b${name}="([^"]*)"`))?.[1] ?? "");

/** What to request next from a page that asks something, if it does. */
function next(html, url, account, answer) {
  const post = (form) => ({
    url: new URL(attribute(html, "form", "action") || url, url).href,
    options: { method: "POST", body: new URLSearchParams(form) },
  });
  // The authorization server's pages.
  if (html.includes('id="sign-in"')) return post({ account, action: "sign-in" });
  if (html.includes('id="allow"')) return post({ action: answer });
  // Bowline's pages: at the end a form; at the start a form, or a link.
  // What the page's script sends.
  const stamp = html.match(/name="shown" value="([^"]*)"/)?.[1];
  if (html.includes('id="finish"')) return post({ shown: stamp, marked: "1" });
  if (!html.includes('id="continue"')) return undefined;
  if (html.includes("<form")) return post({});
  return { url: new URL(attribute(html, "a", "href"), url).href };
}

export class FormBrowser {
  #cookies = new Map();
  /** Every address it was at, in order. */
  visited = [];

  /** One request, no redirect followed. */
  async request(url, options = {}) {
    this.visited.push(url);
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
    let step = { url: String(url) };
    for (let count = 0; count < 30; count++) {
      const response = await this.request(step.url, step.options);
      const location = response.headers.get("location");
      if (response.status >= 300 && response.status < 400 && location) {
        step = { url: new URL(location, step.url).href };
        if (stop(step.url)) return { url: step.url };
        continue;
      }
      const text = await response.text();
      const { url } = step;
      step = next(text, url, account, answer);
      if (!step) return { url, status: response.status, text };
    }
    throw new Error(`no end of redirects and forms at ${new URL(step.url).origin}`);
  }

  /** Cookies know no ports; tests with several servers on 127.0.0.1 want them apart all the same. */
  #jar(url) {
    const { origin } = new URL(url);
    if (!this.#cookies.has(origin)) this.#cookies.set(origin, new Map());
    return this.#cookies.get(origin);
  }
}
