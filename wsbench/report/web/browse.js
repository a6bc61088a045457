// Searches the list as you type, sorts and filters the servers, and follows a running campaign.
"use strict";

const servers = document.getElementById("choose");
if (servers) {
  const body = servers.tBodies[0];
  const rows = [...body.rows];
  const headings = [...servers.tHead.rows[0].cells];
  const by = (row, column) => row.cells[column].dataset.value;
  const sort = (column, best) => {
    const compared = (one, other) => {
      const [mine, theirs] = [by(one, column), by(other, column)];
      if (mine === undefined || theirs === undefined) return (mine === undefined) - (theirs === undefined);
      if (best === undefined) return mine.localeCompare(theirs);
      return best === "high" ? theirs - mine : mine - theirs;
    };
    body.append(...rows.sort(compared));
    headings.forEach((one, place) => {
      if (place !== column) one.removeAttribute("aria-sort");
      else one.setAttribute("aria-sort", best === "high" ? "descending" : "ascending");
    });
  };
  for (const button of servers.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => sort(Number(button.dataset.column), button.dataset.best));
  }
  const only = document.getElementById("only");
  const kept = document.getElementById("kept");
  only.addEventListener("input", () => {
    const words = only.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    kept.textContent = `${count} shown`;
  });
}

const search = document.getElementById("search");
if (search) {
  const rows = [...document.querySelectorAll("#campaigns tbody tr")];
  const found = document.getElementById("found");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    found.textContent = `${count} shown`;
  };
  search.addEventListener("input", () => {
    show();
    const address = new URL(location);
    if (search.value) address.searchParams.set("q", search.value);
    else address.searchParams.delete("q");
    history.replaceState(null, "", address);
  });
  search.value = new URL(location).searchParams.get("q") ?? search.value;
  show();
}

const live = document.querySelector("[data-follow]");
if (live) {
  const follow = async () => {
    const answer = await fetch(live.dataset.follow);
    if (answer.ok) live.innerHTML = await answer.text();
    if (answer.headers.get("X-Running") === "yes") setTimeout(follow, 1000);
    else location.reload();
  };
  setTimeout(follow, 1000);
}
