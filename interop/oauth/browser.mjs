// Opens a sign-in link in Debian's Chromium as a person would: types the account's name, clicks,
// and follows the redirect. An empty profile every time. Prints {"url", "text"} of the last page.
//
// Usage: browser.mjs URL [--account=NAME] [--answer=allow|deny] [--screenshot=FILE]
//                        [--until=PREFIX] [--timeout=SECONDS]
// It is over when there is neither a login nor a consent page and, with --until, the address begins
// with PREFIX. CHROMIUM names another executable.
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    account: { type: "string", default: "alice" },
    answer: { type: "string", default: "allow" },
    screenshot: { type: "string" },
    until: { type: "string", default: "" },
    timeout: { type: "string", default: "30" },
  },
});
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
// Root, as in most containers, has no sandbox; what else talks to the network is switched off.
const args = [
  "--no-sandbox",
  "--disable-dev-shm-usage",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
];
const KNOWN = { "#sign-in": "login", "#allow": "consent" };

/** Which of the authorization server's pages this is, if any. */
async function kind(page) {
  for (const [id, name] of Object.entries(KNOWN))
    if (await page.locator(id).count()) return name;
  return "other";
}

async function click(page, id) {
  await Promise.all([page.waitForNavigation(), page.click(id)]);
}

const browser = await chromium.launch({ executablePath, args, headless: true });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(Number(values.timeout) * 1000);
  await page.goto(positionals[0]);
  for (let name; (name = await kind(page)) !== "other"; )
    if (name === "login") {
      await page.fill("#account", values.account);
      await click(page, "#sign-in");
    } else await click(page, values.answer === "deny" ? "#deny" : "#allow");
  if (values.until) await page.waitForURL((url) => url.href.startsWith(values.until));
  const text = (await page.innerText("body")).trim();
  if (values.screenshot) await page.screenshot({ path: values.screenshot });
  console.log(JSON.stringify({ url: page.url(), text }));
} finally {
  await browser.close();
}
