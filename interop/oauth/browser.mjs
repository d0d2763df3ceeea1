// Opens a sign-in link in Debian's Chromium as a person would: types the account's name, clicks,
// and follows the redirect. An empty profile every time. Prints {"url", "text", "cookies"} of the last
// page; of cookies not the values.
//
// Usage: browser.mjs URL [--account=NAME] [--answer=allow|deny] [--screenshot=FILE]
//                        [--stop=PREFIX] [--timeout=SECONDS] [--name=HOST]
// It is over when no page asks anything any more, or when it is sent to an address that begins with
// PREFIX: a redirect URI where nobody listens, whose code somebody else passes on. HOST is one more name
// of this machine, and its certificate may be anybody's.
// CHROMIUM names another executable.
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    account: { type: "string", default: "alice" },
    answer: { type: "string", default: "allow" },
    screenshot: { type: "string" },
    stop: { type: "string" },
    timeout: { type: "string", default: "30" },
    name: { type: "string", default: "localhost" },
  },
});
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
// Root, as in most containers, has no sandbox. Nothing but this machine has an address.
const args = [
  "--no-sandbox",
  "--disable-dev-shm-usage",
  `--host-resolver-rules=MAP ${values.name} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`,
];
// The authorization server's two pages, and Bowline's start page.
const KNOWN = { "#sign-in": "login", "#allow": "consent", "#continue": "start" };

/** Which of the pages that ask something this is, if any. */
async function kind(page) {
  for (const [id, name] of Object.entries(KNOWN))
    if (await page.locator(id).count()) return name;
  return "other";
}

const browser = await chromium.launch({ executablePath, args, headless: true });
try {
  const page = await browser.newPage({ ignoreHTTPSErrors: values.name !== "localhost" });
  page.setDefaultTimeout(Number(values.timeout) * 1000);
  let stopped;
  page.on("request", (request) => {
    if (!values.stop || !request.isNavigationRequest()) return;
    if (request.url().startsWith(values.stop)) stopped ??= request.url();
  });
  /** Does what leads to another page; that it cannot be loaded matters only if it was to be. */
  const lead = (...acts) =>
    Promise.all(acts).catch((error) => {
      if (!stopped) throw error;
    });
  const click = (id) => lead(page.waitForNavigation(), page.click(id));

  await lead(page.goto(positionals[0]));
  for (let name; !stopped && (name = await kind(page)) !== "other"; )
    if (name === "login") {
      await page.fill("#account", values.account);
      await click("#sign-in");
    } else if (name === "start") await click("#continue");
    else await click(values.answer === "deny" ? "#deny" : "#allow");
  const text = stopped ? "" : (await page.innerText("body")).trim();
  if (values.screenshot) await page.screenshot({ path: values.screenshot });
  // Those that would go along to the callback, whatever their path.
  const cookies = (await page.context().cookies())
    .filter(({ name }) => name.includes("bowline"))
    .map(({ name, path, secure }) => ({ name, path, secure }));
  console.log(JSON.stringify({ url: stopped ?? page.url(), text, cookies }));
} finally {
  await browser.close();
}
