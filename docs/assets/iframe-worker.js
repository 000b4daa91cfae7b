/* Search from disk. Browsers refuse to start a Worker from a file, so there its script runs in a
   hidden frame of the same page instead; on a server nothing changes. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      // What the script posts comes out here; what is posted here is dispatched there.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.deliver = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = () => {
        const early = this.waiting;
        this.waiting = null;
        early.forEach(this.deliver);
      };
      inside.document.documentElement.append(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }
  };
}
