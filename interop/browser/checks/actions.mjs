// Actions on one workflow, and by a filter, as a person does them.

import assert from "node:assert/strict";

import { area, check } from "../../javascript/lib/harness.mjs";
import { visit, world } from "../lib/world.mjs";

area("actions");

check("an event is raised and the workflow goes on", async () => {
  // Every third order waits for an approval.
  await world.cli("workflow", "start", "Order", "--id", "acted-1", "--input", "3");
  await visit("/workflow?id=acted-1", async (page) => {
    await page.waitForSelector("text=ExternalSubscribedPersistent");
    await page.click("summary:has-text('Raise event…')");
    await page.fill("input[name=event]", "approvals");
    await page.fill("textarea[name=payload]", "yes");
    await page.check("input[name=queue]");
    await page.click("button:has-text('Send')");
    await page.waitForSelector("[role=status]:has-text('sent a message to the queue approvals')");
    assert.ok(!page.url().includes("notice"), "the notice is shown once");
    await page.waitForSelector("h1 + .aside .badge.completed");
  });
});

check("a double click sends one event, and the button is disabled", async () => {
  await visit("/workflow?id=waits-1", async (page) => {
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(request.postData()));
    // The answer is held back, so that the page is still there for the second click.
    await page.route("**/workflow", async (route) => {
      await page.waitForTimeout(3000);
      await route.continue();
    });
    await page.click("summary:has-text('Raise event…')");
    await page.fill("input[name=event]", "nobody-waits-for-it");
    await page.check("input[name=queue]");
    const isDisabled = await page.evaluate(async () => {
      const button = document.querySelector("#raise button[type=submit]");
      button.click();
      await new Promise((done) => setTimeout(done, 200));
      const { disabled } = button;
      button.form.requestSubmit();
      return disabled;
    });
    assert.ok(isDisabled, "the button is disabled after the first click");
    await page.waitForSelector("[role=status]:has-text('sent a message to the queue')");
    assert.equal(sent.length, 1);
    assert.match(sent[0], /once=[0-9a-f]{16}/);
    assert.ok(await page.isEnabled("#raise button[type=submit]"), "the new page has a new form");
  });
});

check("a workflow is cancelled, restarted and deleted, each with a confirmation", async () => {
  await world.cli("workflow", "start", "Order", "--id", "acted-2", "--input", "6");
  await visit("/workflow?id=acted-2", async (page) => {
    await page.click("summary:has-text('Cancel…')");
    await page.click("button:has-text('Cancel workflow')");
    assert.ok(await page.isVisible("button:has-text('Cancel workflow')"), "nothing is sent without the tick");
    await page.check("#cancel input[name=confirm]");
    await page.click("button:has-text('Cancel workflow')");
    await page.waitForSelector("[role=status]:has-text('asked to cancel')");
    await page.waitForSelector("h1 + .aside .badge.failed");
    await page.click("summary:has-text('Restart…')");
    await page.check("#restart input[name=confirm]");
    await page.click("#restart button");
    await page.waitForSelector("h1:has-text('acted-2-restart-1')");
    await page.goto(new URL("/workflow?id=acted-2", world.url).href);
    await page.click("summary:has-text('Delete…')");
    await page.check("#delete input[name=confirm]");
    await page.click("#delete button");
    await page.waitForSelector("[role=status]:has-text('deleted')");
    assert.match(page.url(), /\/workflows$/);
  });
});

check("a bulk action counts, asks, and shows its progress", async () => {
  await visit("/bulk?filter=id%3Dcopy-000*", async (page) => {
    await page.selectOption("select[name=workflow_action]", "delete");
    await page.click("button:has-text('Count first')");
    await page.waitForSelector("text=Delete: 100 workflows");
    await page.check("input[name=confirm]");
    await page.click("button:has-text('Begin')");
    await page.waitForSelector("h1:has-text('Bulk action')");
    await page.waitForSelector(".heading:has-text('finished')");
    assert.match(await page.textContent(".facts"), /Done100/);
  });
  assert.match(await world.cli("workflow", "count", "id=copy-000*"), /all\s+0/);
});

check("an item is edited", async () => {
  await visit("/item?database=duroxide&container=duroxide&new=yes", async (page) => {
    await page.fill("textarea", '{"id":"note","instanceId":"notes","text":"<b>one</b>"}');
    await page.click("button:has-text('Create')");
    await page.waitForSelector("[role=status]:has-text('Created note')");
    const json = await page.inputValue("textarea");
    await page.fill("textarea", json.replace("one", "two"));
    await page.click("button:has-text('Save')");
    await page.waitForSelector("[role=status]:has-text('Saved note')");
    assert.match(await page.inputValue("textarea"), /<b>two<\/b>/);
    await page.click("summary:has-text('Delete…')");
    await page.check("input[name=confirm]");
    await page.click(".action button");
    await page.waitForSelector("[role=status]:has-text('Deleted note')");
  });
});

check("a query is run and explained", async () => {
  await visit("/container?database=duroxide&container=duroxide", async (page) => {
    await page.fill("textarea", "SELECT * FROM c WHERE c.id = 'i' AND c.instanceId = 'order-1'");
    await page.check("input[name=explain]");
    await page.click("button:has-text('Run query')");
    await page.waitForSelector("text=What the service did");
    await page.click(".rows a");
    await page.waitForSelector("h1:has-text('i')");
  });
});
