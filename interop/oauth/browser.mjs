// Opens a sign-in link in Debian's Chromium as a person would: types the account's name, clicks,
// and follows the redirect. An empty profile every time. Prints {"url", "text", "cookies"} of the last
// page; of cookies not the values.
//
// Usage: browser.mjs URL [--account=NAME] [--answer=allow|deny] [--screenshot=FILE]
//                        [--stop=PREFIX] [--timeout=SECONDS] [--name=HOST]
//                        [--scripts=on|off] [--finish=press|leave|rush]
// It is over when no page asks anything any more, or when it is sent to an address that begins with
// PREFIX: a redirect URI where nobody listens, whose code somebody else passes on. HOST is one more name
// of this machine, and its certificate may be anybody's. `--finish=leave` does not press the button of the
// page that Bowline shows at the end, where that page does not press it by itself, and `rush` does so too early, by
// mouse and by keyboard: a double click that was meant for another page. A link in a frame with the id
// `lure` is followed to the window that it opens.
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
    scripts: { type: "string", default: "on" },
    finish: { type: "string", default: "press" },
  },
});
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
// Root, as in most containers, has no sandbox. Nothing but this machine has an address.
const args = [
  "--no-sandbox",
  "--disable-dev-shm-usage",
  `--host-resolver-rules=MAP ${values.name} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`,
];
// The authorization server's two pages, and Bowline's two.
const KNOWN = { "#sign-in": "login", "#allow": "consent", "#continue": "start", "#finish": "finish" };

/** Which of the pages that ask something this is, if any. */
async function kind(page) {
  for (const [id, name] of Object.entries(KNOWN))
    if (await page.locator(id).count()) return name;
  return "other";
}

/** Presses the button of the page at the end before it is due. Time stands still for the page, so that no slow machine
 * makes this a patient click. */
async function rush(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Animation.enable");
  await session.send("Animation.setPlaybackRate", { playbackRate: 0 });
  await page.reload();
  const button = page.locator("#finish button");
  if (await button.isVisible()) throw new Error("the button of the page at the end is there at once");
  const { x, y, width, height } = await button.boundingBox();
  await page.mouse.dblclick(x + width / 2, y + height / 2);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const sent = await page.request.post(page.url(), { form: { shown: "", marked: "" } });
  if (sent.status() !== 409) throw new Error(`a form that no page made was answered ${sent.status()}`);
}

/** Whether the start page's button rests when its window comes to the front: a click may be meant for another. */
function isDisabledOnFocus() {
  dispatchEvent(new Event("focus"));
  return document.querySelector("#continue button").disabled;
}

const browser = await chromium.launch({ executablePath, args, headless: true });
try {
  let page = await browser.newPage({
    ignoreHTTPSErrors: values.name !== "localhost",
    javaScriptEnabled: values.scripts === "on",
  });
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
  const isLured = (await page.locator("#lure").count()) > 0;
  if (isLured) {
    const opened = page.waitForEvent("popup");
    await page.frameLocator("#lure").locator("a").click();
    page = await opened;
    page.setDefaultTimeout(Number(values.timeout) * 1000);
    await page.waitForLoadState();
  }
  const hasScripts = values.scripts === "on" && !isLured;
  for (let name; !stopped && (name = await kind(page)) !== "other"; )
    if (name === "login") {
      await page.fill("#account", values.account);
      await click("#sign-in");
    } else if (name === "start") {
      if (hasScripts && !(await page.evaluate(isDisabledOnFocus)))
        throw new Error("the start page's button works at once");
      await click("#continue button");
    }
    else if (name === "finish" && hasScripts) await page.locator("#finish").waitFor({ state: "detached" });
    else if (name === "finish" && values.finish === "leave") break;
    else if (name === "finish" && values.finish === "rush") {
      await rush(page);
      break;
    }
    else if (name === "finish") await click("#finish button");
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
